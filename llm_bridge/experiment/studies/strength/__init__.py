"""How much of mathematics does each method keep while a tiny language model learns to chat, at its best coefficient?"""
