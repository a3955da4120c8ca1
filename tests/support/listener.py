"""Somebody who listens to an MQTT broker."""

import time

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion


class Listener:
    """What a broker passes on to who listens, and what it has kept for who comes later."""

    def __init__(self, broker):
        self.retained = {}
        self.passed = []
        self.last = {}
        self.there = False
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.username_pw_set("streamkit", broker.password)
        client.on_message = self._take
        client.on_subscribe = lambda *_: setattr(self, "there", True)
        client.connect("127.0.0.1", broker.port)
        client.subscribe("#", qos=1)
        self._client = client

    def _take(self, client, data, message):
        self.last[message.topic] = message.payload.decode()
        if message.retain:
            self.retained[message.topic] = message.payload.decode()
        else:
            self.passed.append((message.topic, message.payload.decode()))

    def listen(self, until, what):
        """Until something is as it should be."""
        until_s = time.monotonic() + 30
        while not until() and time.monotonic() < until_s:
            self._client.loop(0.1)
        assert until(), what

    def close(self):
        self._client.disconnect()
        self._client.loop(0.1)
