"""Drafters at work: which drafters are asked, which of their guesses are bought, and what each drafter is worth.

Takes in plans, trees and outcomes; gives out the guesses that a step verifies. Only the engine calls this room.
"""
