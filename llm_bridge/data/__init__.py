"""Prompts and answers of all six sets, in the Parquet format that VeRL's RLHFDataset reads."""
