"""Side-by-side measurements: each prints ratios against a peer or a limit of the same run."""
