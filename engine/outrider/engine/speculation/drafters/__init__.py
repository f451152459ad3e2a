"""The drafters that come with Outrider, one module each (`*_drafter`), and what they are made of.

Takes in openings and commits, gives out draft trees. Services find drafters by the entry points `outrider.drafters`.
"""
