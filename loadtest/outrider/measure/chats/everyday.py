"""Everyday questions and explanations."""

from __future__ import annotations

import random
from collections.abc import Iterator

from outrider.measure.chats.chat_request import ChatRequest

_TOKENS = 192
_QUESTIONS = (
    "Explain {} to a ten-year-old.",
    "What are the pros and cons of {}?",
    "I know nothing about {}. Where should I begin, and what should I avoid?",
    "Write a short, polite email to a colleague in which you suggest {} as a topic for Friday's talk.",
    "How did {} change over the last hundred years?",
    "What are three common mistakes people make with {}, and how can they be avoided?",
    "Give me a checklist for a beginner who wants to get into {}.",
    "My neighbour says that {} is a waste of time. How would you answer?",
    "Describe {} in one paragraph, as an encyclopedia would.",
    "What does {} cost, roughly, and what does that depend on?",
    "Make a small quiz of three questions about {}, with the answers.",
    "What surprising fact about {} would you tell at dinner?",
)
_TOPICS = """
beekeeping; sourdough bread; the tides; solar panels; chess openings; knitting; tax returns; marathon
training; black holes; vaccines; jazz; compost; electric bicycles; the French Revolution; house insurance;
origami; coral reefs; public libraries; learning Spanish; job interviews; volcanoes; home brewing; inflation;
bird watching; the immune system; opera; woodworking; night trains; sleep; mountain weather; stock markets;
pottery; wolves; recycling; the Roman aqueducts; juggling; cheese; remote work; allergies; antique clocks; the
moon landing; vegetable gardens; noise-cancelling headphones; heat pumps; medieval castles; yoga; podcasts;
earthquakes; street photography; rental contracts; the silk road; cycling in winter; mushroom hunting;
fermented food; stage fright; urban trees; satellites; calligraphy; dog training; desert plants; budgeting;
lighthouses; magnetism; fountain pens; tea ceremonies; rainwater tanks; glaciers; flea markets; snow; video
calls; handwriting; ancient Egypt; migration of birds; 3D printing; whales; comics; first aid; bridges; honey;
moving house; the Olympic games; kites; thunderstorms; school uniforms; pasta; rowing; genealogy; tunnels;
shyness; meteorites; second-hand clothes; chocolate; traffic jams; violins; pension plans; sharks; board
games; camping; salt; hiccups; the Vikings; spreadsheets; aquariums; dreams; wind turbines; folk dance;
passports; perfume; mosquitoes; time zones; running shoes; sign language; barns; the printing press; caves;
mortgage rates; umbrellas; tattoos; bilingual children; hot-air balloons; museums; bamboo; migraines; rubber;
carnival; cacti; skiing; roundabouts; mirrors; the periodic table; small talk; canals; dinosaurs; mustard;
wedding speeches; crossword puzzles; bacteria; ferries; wool; escalators; fire drills; poetry; swimming
lessons; potatoes; smoke detectors; eclipses; bicycles for children; community choirs; cement; night shifts;
frost; hedgehogs; maps; plastic; parking; zoos; speed reading; apprenticeships; rivers; haircuts; theatre;
ants; soap; sunglasses; city trams; diaries; pigeons; lawn care; vinyl records; silk; typing; waiting rooms;
planetariums; oats; ladders; neighbourhood parties; rust; ballet; goats; picnics; fog; chimneys
"""


def questions(draw: random.Random) -> Iterator[ChatRequest]:
    """Everyday questions: four different questions about each topic."""
    topics = [topic.strip() for topic in _TOPICS.split(";")]
    pairs = [(topic, frame) for topic in topics for frame in draw.sample(_QUESTIONS, 4)]
    draw.shuffle(pairs)
    for topic, frame in pairs:
        yield ChatRequest("chat", frame.format(" ".join(topic.split())), _TOKENS)
