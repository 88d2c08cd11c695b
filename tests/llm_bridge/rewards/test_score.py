"""The reward function inside VeRL's own reward worker, with a stand-in for the reward model's server."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("math_verify")
pytest.importorskip("verl")

import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

from cokl.support.errors import InputError
from llm_bridge.data.rows import chat_row, math_row
from llm_bridge.rewards.score import ATTEMPTS, REWARD_MODEL, compute_score, without_thinking
from tests.llm_bridge.toy import make_tokenizer

PAIRS = Path(__file__).with_name("verifier_pairs.jsonl")
QUESTION = "Hi! What do you think of two rude cats?"
CHAT = chat_row("chat_val", 0, "x", [{"role": "user", "content": QUESTION}])
MATH = math_row("olympiad", 0, "x", "Two numbers?", "5, 7", multiple=True, tolerances=[0.5])


class RewardServer:
    """Answers as vLLM's /classify does: the letters in the input as the logit; first some errors, if wanted."""

    def __init__(self, failures: int = 0, body: str | None = None, status: int = 503) -> None:
        self.requests: list[tuple[str, dict]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, request))
                score = float(len("".join(request["input"].split())))
                answer = body or json.dumps({"data": [{"index": 0, "probs": [score], "num_classes": 1}]})
                self.send_response(status if len(outer.requests) <= failures else 200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, *_args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exception):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def worker(tokenizer_folder, address=None, **reward_kwargs):
    """VeRL's reward worker, in this process, with the reward function that a run would name."""
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"tokenizer_path": None, "path": tokenizer_folder}},
            "reward": {
                "num_workers": 1,
                "reward_model": {"enable": address is not None, "model_path": tokenizer_folder},
                "reward_manager": {"source": "register", "name": "naive"},
                "custom_reward_function": {
                    "path": "pkg://llm_bridge.rewards.score",
                    "name": "compute_score",
                    "reward_kwargs": reward_kwargs,
                },
            },
        }
    )
    return RewardLoopWorker(config, address)


def batch(*pairs):
    """Rows and responses as VeRL hands them to the worker: left-aligned responses, padded."""
    tokenizer = make_tokenizer()
    tokens = tokenizer(
        [f"{response}{tokenizer.eos_token}" for _, response in pairs], padding=True, padding_side="right"
    )
    columns = {name: [row[name] for row, _ in pairs] for name in ("data_source", "reward_model", "extra_info")}
    return DataProto.from_dict(
        tensors={
            "responses": torch.tensor(tokens["input_ids"]),
            "attention_mask": torch.tensor(tokens["attention_mask"]),
        },
        non_tensors={name: np.array([*values, None], dtype=object)[:-1] for name, values in columns.items()},
    )


def scores(reward_worker, *pairs):
    return reward_worker.loop.run_until_complete(reward_worker.compute_score_batch(batch(*pairs)))


def test_verls_worker_scores_mathematics_and_chat_in_one_batch_with_the_same_keys(tokenizer_folder):
    reply = "I think 15 cats are warm and rude !"
    with RewardServer() as server:
        found = scores(
            worker(tokenizer_folder, server.address, reward_model=tokenizer_folder),
            (math_row("math_train", 0, "x", "?", "7"), "\\boxed{ 3 + 4 }"),
            (math_row("math_train", 0, "x", "?", "7"), "\\boxed{ 3 + 5 }"),
            (CHAT, reply),
            (math_row("math_val", 0, "x", "?", "7"), "7 !"),
        )
        ((_, request),) = server.requests
    letters = float(len("".join(request["input"].split())))
    assert [result["reward_score"] for result in found] == [1.0, 0.0, letters, 0.0]
    assert [result["reward_extra_info"]["verdict"] for result in found] == [
        "correct",
        "incorrect",
        "scored",
        "no_answer",
    ]
    assert {tuple(result["reward_extra_info"]) for result in found} == {("score", "verdict", "answer")}


def test_verls_worker_asks_the_reward_model_as_verl_itself_would(tokenizer_folder):
    reply = "cats are lovely !"
    with RewardServer() as server:
        reward_worker = worker(tokenizer_folder, server.address, reward_model=tokenizer_folder)
        ours = scores(reward_worker, (CHAT, reply))[0]["reward_score"]
        data = batch((CHAT, reply))
        prompt = np.empty(1, dtype=object)
        prompt[0] = CHAT["prompt"]
        data.non_tensor_batch["raw_prompt"] = prompt
        reward_worker.config.reward.reward_model.rollout = {"name": "vllm"}
        verls = reward_worker.loop.run_until_complete(reward_worker.compute_score_disrm(data))["reward_score"]
        (ours_path, ours_request), (verls_path, verls_request) = server.requests
    assert ours_path == verls_path == "/classify"
    assert ours_request.keys() - verls_request.keys() == {"truncate_prompt_tokens"}
    for key in ("model", "use_activation"):
        assert ours_request[key] == verls_request[key]
    assert ours_request["input"].replace(" ", "") == verls_request["input"].replace(" ", "")
    assert ours == verls


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    async def at_once(seconds):
        pass

    monkeypatch.setattr("llm_bridge.rewards.score.asyncio.sleep", at_once)


def ask(response, **kwargs):
    row = kwargs.pop("row", CHAT)
    return asyncio.run(
        compute_score(row["data_source"], response, row["reward_model"]["ground_truth"], row["extra_info"], **kwargs)
    )


def test_thinking_is_stripped_before_scoring():
    with RewardServer() as server:
        ask(
            "<think>rude dogs</think>\n\ncats !",
            reward_router_address=server.address,
            reward_model_tokenizer=make_tokenizer(),
        )
        ((_, request),) = server.requests
    assert request == {
        "model": REWARD_MODEL,
        "input": f"<|user|>{QUESTION}<|im_end|><|assistant|>cats !<|im_end|>",
        "use_activation": False,
        "truncate_prompt_tokens": -1,
    }


@pytest.mark.parametrize(
    ("response", "visible"),
    [
        ("plain", "plain"),
        ("<think>a</think> b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>never ends", ""),
        ("<think></think>", ""),
        ("said <think>never ends", "said"),
        ("", ""),
    ],
)
def test_what_the_user_would_see(response, visible):
    assert without_thinking(response) == visible


def test_pairs_are_judged_beside_verl_as_in_the_core():
    """VeRL's configuration holds antlr4 at 4.9, beside which math-verify alone reads no percentage."""
    for line in PAIRS.read_text().splitlines():
        pair = json.loads(line)
        how = {"multiple": pair["multiple"], "tolerances": pair["tolerances"]}
        found = asyncio.run(compute_score("math", pair["response"], pair["ground_truth"], how))
        assert found["score"] == (pair["correct"] and "refused" not in pair), pair


def test_lists_and_tolerances_reach_the_verifier():
    assert ask("\\boxed{7, 5}", row=MATH) == {"score": 1.0, "verdict": "correct", "answer": "7, 5"}
    assert ask("\\boxed{7.4, 4.6}", row=MATH)["score"] == 1
    assert ask("\\boxed{7.6, 5}", row=MATH) == {"score": 0.0, "verdict": "incorrect", "answer": "7.6, 5"}
    assert ask("7, 5", row=MATH) == {"score": 0.0, "verdict": "no_answer", "answer": ""}


def test_a_server_that_stumbles_is_asked_again():
    with RewardServer(failures=1) as server:
        found = ask("cats !", reward_router_address=server.address, reward_model_tokenizer=make_tokenizer())
        assert len(server.requests) == 2
    assert found["score"] > 0


@pytest.mark.parametrize("body", ["no JSON", "{}", '{"data": [{"probs": [NaN]}]}'])
def test_an_answer_without_a_score_is_one_line(body):
    with RewardServer(body=body) as server, pytest.raises(InputError, match="gave no score") as error:
        ask("cats !", reward_router_address=server.address, reward_model_tokenizer=make_tokenizer())
    assert "\n" not in str(error.value)


def test_a_server_that_refuses_ends_the_run_with_its_text():
    said = json.dumps({"error": "the prompt is longer than the context"})
    with RewardServer(failures=99, body=said, status=400) as server:
        with pytest.raises(InputError, match=r"gave no score \(HTTP 400: .*longer than the context"):
            ask("cats !", reward_router_address=server.address, reward_model_tokenizer=make_tokenizer())
        assert len(server.requests) == ATTEMPTS


def test_no_reward_model_is_one_line():
    with pytest.raises(InputError, match=r"VeRL runs none: set reward.reward_model.enable=True"):
        ask("cats !")


def test_a_router_that_is_gone_is_one_line_within_the_limit():
    with RewardServer() as server:
        address = server.address
    with pytest.raises(InputError, match=r"gave no score \(.*see the log of its server") as error:
        ask("!", reward_router_address=address, reward_model_tokenizer=make_tokenizer(), reward_model_seconds=0.5)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("source", ["olympiad", "poems"])
def test_the_conversation_decides_and_not_the_data_source(source):
    assert ask("\\boxed{7, 5}", row=MATH | {"data_source": source})["verdict"] == "correct"
    with pytest.raises(InputError, match="chat is scored by a reward model"):
        ask("!", row=CHAT | {"data_source": source})
