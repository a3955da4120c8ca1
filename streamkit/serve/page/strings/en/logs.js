// The messages of the run.

export default {
  "logs.title": "Messages",
  "logs.filter": "Filter the messages",
  "logs.level": "Level",
  "logs.info": "info",
  "logs.warning": "warning",
  "logs.error": "error",
  "logs.words": "Text",
  "logs.follow": "Follow",
  "logs.count": "{shown} of {all} messages",
  "logs.none": "No message matches.",
  "logs.signIn": "Sign in to read the messages",
};
