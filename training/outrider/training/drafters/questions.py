"""What the made prompts ask: tasks about a function, and questions about everyday subjects."""

from __future__ import annotations

TASKS = (
    "Complete this Python function. Answer with the code only.\n\n```python\n{begun}\n```",
    "Explain what this function does, step by step.\n\n```python\n{whole}\n```",
    "Write unit tests with pytest for this function.\n\n```python\n{whole}\n```",
    "Add type hints and a docstring to this function.\n\n```python\n{whole}\n```",
    "Rewrite this function so that it is easier to read, and say what you changed.\n\n```python\n{whole}\n```",
    "Finish this Python code.\n\n```python\n{begun}\n```",
    "Translate this Python function to JavaScript.\n\n```python\n{whole}\n```",
    "Are there bugs in this function? Show a corrected version.\n\n```python\n{whole}\n```",
)
"""``{whole}`` is a function, ``{begun}`` its beginning."""

FRAMES = (
    "Explain {} to somebody who hears of it for the first time.",
    "What are the most important facts about {}? Give a numbered list.",
    "Write a short story in which {} plays a part.",
    "What mistakes do people often make with {}, and how can they be avoided?",
    "Write an e-mail to a colleague that proposes a talk about {}.",
    "Give me five questions, with answers, for a quiz about {}.",
    "How has {} changed over the last hundred years?",
    "Summarize the arguments for and against {} in a table.",
    "I have one weekend to learn about {}. Make a plan for me.",
    "Write a poem of eight lines about {}.",
    "What would you ask an expert on {}?",
    "Compare {} with something similar, and say when to prefer which.",
    "Write a dialogue between a teacher and a student about {}.",
    "What do I need to buy or prepare before I begin with {}?",
)

SUBJECTS = tuple(
    """baking bread; a database index; the water cycle; chess openings; public libraries; solar power; version control;
    growing tomatoes; the stock market; sleep; a bicycle's gears; recursion; the French Revolution; making coffee;
    working from home; unit tests; the human heart; learning a language; a family budget; volcanoes; hash tables;
    city traffic; classical music; antibiotics; HTTP; running a marathon; the moon's phases; beekeeping; job interviews;
    encryption; vegetarian cooking; tides; photography; search engines; gardening in shade; the Roman Empire;
    first aid; concurrency; knitting; electric cars; insurance; time zones; the immune system; painting a room;
    regular expressions; hiking in mountains; inflation; spreadsheets; dinosaurs; public speaking; compilers;
    recycling; the violin; earthquakes; a garbage collector; tea; home repairs; black holes; email etiquette;
    swimming; caching; winter clothing; elections; neural networks; carpentry; migratory birds; spam filters;
    sourdough; maps; linear equations; a fair rent; stage fright; bridges; the binary system; camping with children;
    museums; load balancing; board games; the periodic table; writing a letter of complaint""".replace("\n", " ").split(
        ";"
    )
)
SUBJECTS = tuple(" ".join(subject.split()) for subject in SUBJECTS)
"""What the frames ask about."""
