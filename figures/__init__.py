"""One module per figure of the paper and of ours; `style` is what they share."""
