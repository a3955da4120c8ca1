#!/bin/sh
# Writes the random passwords and tokens of compose.yaml into secrets/; those that exist stay.
# The folder is closed to other users, so the files in it may be readable: each container has another user.
set -eu
cd "$(dirname "$0")"
umask 022
mkdir -p -m 700 secrets
for name in streamkit_token metrics_token mqtt_password grafana_password; do
    [ -s "secrets/$name" ] || openssl rand -hex 24 >"secrets/$name"
done
chmod go-w config/tokens.yaml # streamkit refuses tokens that others may change
