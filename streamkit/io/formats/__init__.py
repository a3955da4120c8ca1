"""Record formats: JSON Schema, Avro and Protobuf, all generated from one description.

description ──► json_schema, avro, protobuf     the schemas that `run.py schema --records` prints
            ──► shaping ──► avro, protobuf      conversion of records to bytes and back
"""
