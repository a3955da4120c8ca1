"""A plain reference of durations, cool-downs and schedules of rules."""


class ReferenceDebounce:
    """The states of a rule for a single item, computed from the whole history at every step.

    The history has a separate clock, which stands still while the given one goes back.
    """

    def __init__(self, for_s, clear_s, cooldown_s, gap_s):
        self.for_s = for_s
        self.clear_s = clear_s
        self.cooldown_s = cooldown_s
        self.gap_s = gap_s
        self.history = []
        self.events = []
        self.now_s = 0.0
        self.previous_s = None

    def step(self, now_s, true, over, opened):
        past_s = 0.0 if self.previous_s is None else now_s - self.previous_s
        self.previous_s = now_s
        self.now_s = self.now_s + max(past_s, 0.0)
        anew = not 0 <= past_s <= self.gap_s
        self.history.append((self.now_s, true and opened and not over, over, opened, anew))
        raised = bool(self.events) and self.events[-1][1] == "raised"
        if raised and (not opened or self.lasted(2) >= self.clear_s):
            self.events.append((self.now_s, "cleared", len(self.history)))
        elif not raised and self.lasted(1) >= self.for_s and self.now_s - self.last("cleared") >= self.cooldown_s:
            self.events.append((self.now_s, "raised", len(self.history)))
        else:
            return None
        return self.events[-1][1]

    def last(self, kind):
        return next((at for at, what, _ in reversed(self.events) if what == kind), float("-inf"))

    def lasted(self, column):
        """Return for how long a column has been true since the last event, in seconds; -1 if it is not."""
        start_s = None
        for step in reversed(self.history[self.events[-1][2] if self.events else 0 :]):
            if not step[column]:
                break
            start_s = step[0]
            if step[4]:
                break
        return -1 if start_s is None else self.now_s - start_s
