"""Conversations: the prompt of each turn is the conversation so far, the last
answer included, and new tokens of the user. Random, but the same for one seed.

All conversations' turns begin together, once all have been answered; and each
turn goes to another server than the one before: what helps there came through
the pool, or is left from two turns ago.
"""

import dataclasses
import random

FIRST_TOKEN = 300  # below are those with a meaning, in both models


@dataclasses.dataclass(frozen=True)
class Workload:
    conversations: int
    turns: int
    first: int  # tokens of the user in the first turn
    later: int  # and in each later one
    answer: int
    again: bool = False  # all turns ask for the first one's prompt
    seed: int = 1
    vocabulary: int = 2048

    def message(self, round_: int, conversation: int, turn: int) -> list[int]:
        """New tokens of the user. No two rounds, conversations or turns have a prefix
        in common, but by their own history."""
        chance = random.Random(f"{self.seed}/{round_}/{conversation}/{turn}")
        count = self.later if turn else self.first
        return chance.choices(range(FIRST_TOKEN, self.vocabulary), k=count)

    def server(self, conversation: int, turn: int, servers: int) -> int:
        return (conversation + turn) % servers

    @property
    def longest(self) -> int:
        if self.again:
            return self.first + self.answer
        return self.first + (self.turns - 1) * self.later + self.turns * self.answer


class Conversation:
    def __init__(self, workload: Workload, round_: int, number: int) -> None:
        self.workload = workload
        self.round = round_
        self.number = number
        self.turn = -1
        self.history: list[int] = []

    def next_prompt(self) -> list[int]:
        self.turn += 1
        if self.turn and self.workload.again:
            return list(self.history)
        self.history += self.workload.message(self.round, self.number, self.turn)
        return list(self.history)

    def answered(self, tokens: list[int]) -> None:
        if not self.workload.again:
            self.history += tokens
