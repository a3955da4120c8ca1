// The alarm center.

export default {
  "alarms.title": "Alarms",
  "alarms.wrong": "Problems",
  "alarms.fine": "Nothing is wrong.",
  "alarms.history": "History",
  "alarms.never": "No alarm was raised since the start.",
  "alarms.rules": "Rules",
  "alarms.noRules": "This pipeline has no alarms: add some under alarms: in its YAML.",
  "alarms.count": "raised since the start: {n}",
  "alarms.since": "for {time}",
  "alarms.of": "alarm {names}",
  "alarms.raisedFor": "raised for {sources}; {count}",
  "alarms.acknowledged": "acknowledged, for {time}",
  "alarms.acknowledge": "Acknowledge",
  "alarms.acknowledgeOf": "Acknowledge: {text}",
  "alarms.noted": "Acknowledged: {text}",
  "alarms.wasRaised": "{alarm} raised",
  "alarms.wasCleared": "{alarm} cleared",
};
