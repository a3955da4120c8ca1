# Signs in and reads one value. The options are in a file: other processes can read a command line.
set -eu
umask 077
mkdir -p /tmp/health
printf '%s\n' '-u streamkit' "-P $(cat /run/secrets/mqtt_password)" >/tmp/health/mosquitto_sub
XDG_CONFIG_HOME=/tmp/health exec mosquitto_sub -t '$SYS/broker/uptime' -C 1 -W 3 >/dev/null
