"""Make the bucket named on the command line, or find it there; waits for the S3 server.

Only for a stack that brings its own server: elsewhere a bucket is made by whoever owns the store.
"""

import sys
import time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PATIENCE_S = 60.0
PAUSE_S = 0.5
THERE_ALREADY = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def main(name: str) -> int:
    client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.create_bucket(Bucket=name)
            return 0
        except ClientError as error:
            if error.response["Error"]["Code"] in THERE_ALREADY:
                return 0
            problem: Exception = error
        except BotoCoreError as error:
            problem = error
        if time.monotonic() > deadline:
            sys.stderr.write(f"bucket {name} cannot be made: {problem}\n")
            return 1
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
