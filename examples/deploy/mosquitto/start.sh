# Hashes the account's password into a file in memory, then runs the broker.
set -eu
umask 077
printf 'streamkit:%s\n' "$(cat /run/secrets/mqtt_password)" >/tmp/passwords
mosquitto_passwd -U /tmp/passwords
exec mosquitto -c /mosquitto/config/mosquitto.conf
