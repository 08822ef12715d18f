// Package s3 is the door of clients of S3: an object is an artifact, a bucket is a bucket.
//
// It does not store anything, and does not check rights beyond the signature of a request: package authz wraps its [Objects].
// It does not know the other doors.
//
// Format: the HTTP of Amazon S3, with signatures of version 4 in the header, in the query (presigned), and of streams of
// chunks with trailers. A bucket is the first part of the path or, for the names of [Options].Names, the first label of the
// host. Keys come from [Keys]; a computer's requests come by [Door.Own] and need none.
//
// What S3 has and Holt has not (policies, ACLs, encryption by keys, replication, notifications, websites and more) is
// answered with NotImplemented, so that no client believes that it is in effect.
//
// Trap: a body is verified while it is read, so a reader's last error may be that it is not what was signed. Nothing that
// was read may be visible before that.
package s3
