"""Outrider's own endpoints over HTTP: tokenizing, named prompts, models, readiness."""
