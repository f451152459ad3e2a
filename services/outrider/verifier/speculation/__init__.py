"""Drafters at work: who is asked, what is bought of their trees, and what each drafter is worth.

In come plans, trees and outcomes; out go the guesses that a step verifies. Only the engine calls it.
"""
