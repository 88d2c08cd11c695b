# The README's two commands in a container; what the first makes is in the mounted folder:
#   docker build --tag cokl .
#   docker run --rm --volume "$PWD/runs:/cokl/runs" cokl
#   docker run --rm cokl make test
FROM python:3.11-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /cokl
COPY . .
RUN make .venv/.complete
CMD ["make", "reproduce"]
