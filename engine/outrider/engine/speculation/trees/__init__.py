"""Trees of guesses: one drafter's, and the merged tree of several; the distributions that guesses are drawn from."""
