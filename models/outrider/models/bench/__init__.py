"""Times steps of models on this machine, beside the least time that its memory and its cores allow."""
