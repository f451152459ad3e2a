"""Requests to extract facts from a text, as JSON by a schema."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from outrider.measure.chats.chat_request import ChatRequest

_TOKENS = 192
_FEWEST = 4


def _words(text: str) -> list[str]:
    return text.split()


_FIRST = _words(
    "Ada Boris Chen Dalia Emeka Farah Goran Hana Ivo Jun Kofi Lena Mateo Nadia Omar Petra Quinn Rosa Sven Tariq"
)
_LAST = _words(
    "Adler Baptiste Costa Dvorak Eriksen Fontaine Gupta Haddad Ito Jansen Kowalski Lindgren Moreau Nwosu Ortiz"
)
_CITIES = _words("Lisbon Graz Osaka Tampere Porto Quito Bergen Leeds Tunis Cork Basel Ghent Perth Lima Turku Nantes")
_ROOTS = _words(
    "Alder Birch Cobalt Delta Ember Falcon Granite Harbor Indigo Juniper Kestrel Lumen Meridian Nimbus Orchid"
)
_TRADES = _words("Logistics Foods Optics Textiles Robotics Insurance Press Shipping Energy Furniture Ceramics Travel")
_MONTHS = _words("January February March April May June July August September October November December")
_NOTES = (
    "Nothing else was agreed.",
    "Further details will follow in writing.",
    "The rest of the message was about the weather.",
    "Someone added that the coffee machine is broken again.",
    "An earlier version of this note had other figures, which no longer hold.",
    "Please keep this between us for now.",
)

Make = Callable[[random.Random], Any]


def _person(draw: random.Random) -> str:
    return f"{draw.choice(_FIRST)} {draw.choice(_LAST)}"


def _company(draw: random.Random) -> str:
    return f"{draw.choice(_ROOTS)} {draw.choice(_TRADES)}"


def _date(draw: random.Random) -> str:
    return f"{draw.randint(1, 28)} {draw.choice(_MONTHS)} {draw.randint(2019, 2031)}"


def _time(draw: random.Random) -> str:
    return f"{draw.randint(6, 22)}:{draw.choice(('00', '10', '15', '25', '30', '45', '50'))}"


def _code(draw: random.Random) -> str:
    return "".join(draw.choices("ABCDEFGHKLMNPRSTUVWXYZ", k=2)) + f"-{draw.randint(1000, 99999)}"


def _city(draw: random.Random) -> str:
    return draw.choice(_CITIES)


def _whole(least: int, most: int) -> Make:
    return lambda draw: draw.randint(least, most)


def _money(draw: random.Random) -> float:
    return draw.randint(900, 990_000) / 100


def _one(*choices: str) -> Make:
    return lambda draw: draw.choice(choices)


def _some(make: Make) -> Make:
    return lambda draw: list(dict.fromkeys(make(draw) for _ in range(draw.randint(2, 4))))


_DOMAINS: dict[str, dict[str, tuple[Make, str]]] = {
    "invoice": {
        "invoice_number": (_code, "The invoice has the number {}."),
        "customer": (_company, "It is made out to {}."),
        "contact": (_person, "Questions go to {}."),
        "issued": (_date, "It was issued on {}."),
        "due": (_date, "Payment is due by {}."),
        "total": (_money, "The total comes to {} euros."),
        "items": (_some(_one("desk lamps", "toner", "cables", "chairs", "shelves", "paper")), "We delivered {}."),
    },
    "meeting": {
        "title": (
            _one("budget review", "kick-off", "retrospective", "safety briefing", "hiring round"),
            "This was the {}.",
        ),
        "chair": (_person, "{} was in the chair."),
        "present": (_some(_person), "Those present were {}."),
        "held_on": (_date, "We met on {}."),
        "start": (_time, "The meeting began at {}."),
        "minutes": (_whole(15, 190), "It took {} minutes."),
        "place": (_city, "The place was our office in {}."),
    },
    "flight": {
        "passenger": (_person, "The ticket is in the name of {}."),
        "flight": (_code, "The flight is {}."),
        "origin": (_city, "It leaves from {}."),
        "destination": (_city, "The plane lands in {}."),
        "departure": (_time, "Departure is at {}."),
        "gate": (_whole(1, 88), "Boarding takes place at gate {}."),
        "bags": (_whole(0, 5), "The number of checked bags is {}."),
    },
    "job": {
        "employer": (_company, "{} is looking for someone new."),
        "role": (_one("welder", "accountant", "data analyst", "nurse", "gardener", "tram driver"), "They need a {}."),
        "salary": (_whole(24_000, 120_000), "The salary is {} a year."),
        "hours": (_whole(12, 42), "One works {} hours a week."),
        "languages": (_some(_one("English", "Polish", "Arabic", "Dutch", "Hindi", "Greek")), "One should speak {}."),
        "apply_by": (_date, "Applications are welcome until {}."),
        "contact": (_person, "Letters should be sent to {}."),
    },
    "flat": {
        "address_city": (_city, "There is a flat to let in {}."),
        "rooms": (_whole(1, 7), "The number of its rooms is {}."),
        "area": (_whole(18, 190), "It measures {} square metres."),
        "rent": (_money, "The rent is {} a month."),
        "free_from": (_date, "It is free from {}."),
        "extras": (_some(_one("balcony", "lift", "garage", "cellar", "garden", "dishwasher")), "It comes with {}."),
        "landlord": (_person, "The landlord is {}."),
    },
    "incident": {
        "ticket": (_code, "The ticket is {}."),
        "service": (_one("billing", "login", "search", "mail", "backup", "chat"), "The service that failed was {}."),
        "severity": (_one("low", "medium", "high", "critical"), "Its severity was set to {}."),
        "reported_by": (_person, "{} noticed it first."),
        "began": (_time, "It began at {}."),
        "users_affected": (_whole(3, 90_000), "About {} users were affected."),
        "fixed_by": (_some(_person), "It was mended by {}."),
    },
    "concert": {
        "artist": (_person, "On stage is {}."),
        "hall": (_company, "The concert takes place in the hall of {}."),
        "city": (_city, "That is in {}."),
        "date": (_date, "The date is {}."),
        "doors": (_time, "Doors open at {}."),
        "price": (_money, "A ticket costs {}."),
        "instruments": (_some(_one("piano", "cello", "harp", "drums", "oboe", "guitar")), "One will hear {}."),
    },
    "parcel": {
        "tracking": (_code, "The parcel can be followed as {}."),
        "sender": (_company, "It was sent by {}."),
        "recipient": (_person, "It is addressed to {}."),
        "weight_grams": (_whole(80, 31_000), "It weighs {} grams."),
        "depot": (_city, "At present it lies in the depot of {}."),
        "expected": (_date, "It should arrive on {}."),
        "state": (_one("in transit", "at customs", "delivered", "returned", "lost"), "Its state is said to be {}."),
    },
}
_FRAMES = (
    "Extract the facts from this text as JSON.\n\n{}",
    "{}\n\nFill in the form by the text above.",
    "Read the {domain} note below and give me its data as JSON.\n\n{}",
    "Turn this into a record:\n\n{}",
)


def forms(draw: random.Random) -> Iterator[ChatRequest]:
    """Texts with schemas, without end; each has random fields in random order with random values."""
    while True:
        domain = draw.choice(sorted(_DOMAINS))
        fields = _DOMAINS[domain]
        values = {name: make(draw) for name, (make, _) in fields.items()}
        sentences = [fields[name][1].format(_text(value)) for name, value in values.items()]
        sentences += draw.sample(_NOTES, 2)
        draw.shuffle(sentences)
        names = draw.sample(sorted(fields), draw.randint(_FEWEST, len(fields)))
        text = draw.choice(_FRAMES).format(" ".join(sentences), domain=domain)
        yield ChatRequest("extract", text, _TOKENS, _schema({name: values[name] for name in names}))


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _schema(values: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: _type(value) for name, value in values.items()},
        "required": list(values),
        "additionalProperties": False,
    }


def _type(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"type": "array", "items": {"type": "string"}}
    return {"type": {int: "integer", float: "number"}.get(type(value), "string")}
