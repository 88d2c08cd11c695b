"""How much of CoKL's second term the paper's rows look like, and where that term improves the trade-off."""
