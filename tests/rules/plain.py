"""What lasts, cools down and has a schedule, as plainly as it can be said."""


class Plain:
    """What `Holding` does for one thing, worked out from the whole history at every step."""

    def __init__(self, for_s, clear_s, cooldown_s, gap_s):
        self.for_s, self.clear_s, self.cooldown_s, self.gap_s = for_s, clear_s, cooldown_s, gap_s
        self.history, self.events = [], []

    def step(self, now_s, true, over, opened):
        self.history.append((now_s, true and opened and not over, over, opened))
        raised = bool(self.events) and self.events[-1][1] == "raised"
        if raised and (not opened or self.lasted(2) >= self.clear_s):
            self.events.append((now_s, "cleared"))
        elif not raised and self.lasted(1) >= self.for_s and now_s - self.last("cleared") >= self.cooldown_s:
            self.events.append((now_s, "raised"))
        else:
            return None
        return self.events[-1][1]

    def last(self, kind):
        return next((at for at, what in reversed(self.events) if what == kind), float("-inf"))

    def lasted(self, column):
        """How long it has been true, at steps without a gap between them, since the last event; -1 for not at all."""
        since = self.events[-1][0] if self.events else float("-inf")
        begun, later = None, None
        for step in reversed(self.history):
            if not step[column] or (later is not None and later - step[0] > self.gap_s):
                break
            if step[0] <= since and self.history[-1][0] != step[0]:
                break
            begun = later = step[0]
        return -1 if begun is None else self.history[-1][0] - begun
