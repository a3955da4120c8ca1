# Hashes the account's password into a file in memory, then runs the broker, which wants these files for itself alone.
set -eu
umask 077
printf 'streamkit:%s\n' "$(cat /run/secrets/mqtt_password)" >/tmp/passwords
mosquitto_passwd -U /tmp/passwords
cat /mosquitto/config/acl.conf >/tmp/acl
exec mosquitto -c /mosquitto/config/mosquitto.conf
