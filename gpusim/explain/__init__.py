"""What the counters of a launch mean: findings with their reason and their remedy."""
