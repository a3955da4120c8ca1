"""Images and events for viewers: the stage that makes them, their store, and their way between processes."""
