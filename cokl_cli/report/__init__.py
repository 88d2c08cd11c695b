"""One page of everything that was measured: a self-contained HTML file, a module per section."""
