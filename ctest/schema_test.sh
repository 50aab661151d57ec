#!/bin/sh
# Checks a JSON document against a JSON Schema: schema_test.sh SCHEMA DOCUMENT. Status 77 where no
# Python here has the module jsonschema; scripts/setup.sh brings one.
set -u
for python in python3 /usr/bin/python3; do
    "$python" -c 'import jsonschema' 2>/dev/null || continue
    exec "$python" "$(dirname "$0")/schema_test.py" "$@"
done
echo "skipped: no Python with jsonschema"
exit 77
