# SPDX-License-Identifier: Apache-2.0
"""Sends records to brokers and databases, at least once and in order.

The brokers themselves are in `streamkit/stages/sinks/brokers/`, one file each.

```
stage thread                                          |  sender thread
frame ─► record selection ─► (topic, key, body) ─► spool ─► sender ─► client ─► broker
                             topics.py              |  on disk  retries   acknowledges
```

record_selection.py, topics.py  which records are sent, and under which topic and key
segment_file.py, spool.py       the queue on disk: bounded, crash-safe, shared by the two threads
offset_store.py                 which records of the spool were acknowledged
sender.py                       connects, sends in order, waits for acknowledgements, reconnects; dead letters
broker.py                       what an emitter declares of its broker
client.py                       the interface of clients; conversion of records; addresses and certificates
emitter.py                      the base stage of all emitters, with their common options
home_assistant.py               MQTT discovery messages for Home Assistant
"""
