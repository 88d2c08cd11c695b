"""The tiny preset: its own language, tokenizer, model, data and chat reward, made in about a minute on one core."""
