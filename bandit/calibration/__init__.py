"""With which share of CoKL's second term the paper's pattern appears, and where that term improves the trade-off."""
