// Package clouds makes package blob open buckets of S3 (s3://) and containers of Azure Blob
// (azblob://). Programs import it for that alone. It is apart, because the clients of both are a
// quarter of a program, and tests that need no cloud are linked without them.
package clouds

import (
	_ "gocloud.dev/blob/azureblob" // registers azblob://
	_ "gocloud.dev/blob/s3blob"    // registers s3://
)
