# SPDX-License-Identifier: Apache-2.0
"""Record formats: JSON Schema, Avro and Protobuf, all generated from one description.

description ──► schemas, avro, protobuf         the schemas that `streamkit schema --records` prints
            ──► shaping ──► avro, protobuf      conversion of records to bytes
"""
