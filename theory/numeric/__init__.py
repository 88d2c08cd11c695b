"""Numbers beyond the closed forms: softmaxes that are trained, and groups that are drawn."""
