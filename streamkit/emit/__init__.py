"""Sending records to brokers and databases, at least once and in order.

```
stage thread                            |  thread of the sender
frame ─► choice ─► (topic, key, body) ─► spool ─► sender ─► client ─► broker
         what      topics.py            |  on disk  tries      acknowledges
```

choice.py, topics.py    which records go out, and under which topic and key
blocks.py, spool.py     the queue on disk: bounded, crash-safe, where the two threads meet
sender.py               connects, sends in order, waits for the acknowledgement, connects again
client.py               what a client must do; addresses and certificates
emitter.py              the stage under all of them, with the options they have in common
mqtt.py, redis.py, ...  one client each
home_assistant.py       what MQTT tells Home Assistant of each source
"""
