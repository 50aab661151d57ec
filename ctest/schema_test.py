"""Checks a JSON document against a JSON Schema, and that the schema looks at each field of it."""

import json
import sys

import jsonschema


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        document = json.load(file)
    kind = jsonschema.Draft202012Validator
    kind.check_schema(schema)
    validator = kind(schema)
    problems = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
    # A schema that takes anything proves nothing.
    for key in document:
        if validator.is_valid(document | {key: -1}):
            problems.append(f"{key} may be anything")
        if validator.is_valid({other: document[other] for other in document if other != key}):
            problems.append(f"{key} may be absent")
    print("\n".join(problems))
    return 1 if problems else 0


sys.exit(main())
