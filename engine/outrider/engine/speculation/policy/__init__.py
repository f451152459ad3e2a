"""Drafters at work: which drafters are asked, which guesses are bought, and what each drafter brings and costs.

Takes in plans, trees and outcomes; gives out the guesses that a step verifies. Only the engine calls this room.
"""
