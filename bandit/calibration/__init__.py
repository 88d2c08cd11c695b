"""With which share of CoKL's second term the paper's table rows appear, and where that term improves the trade-off."""
