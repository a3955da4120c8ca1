from support.archives import archive, database, shared_archive  # noqa: F401  fixtures
from support.s3_server import bucket, s3, s3_server  # noqa: F401  fixtures
