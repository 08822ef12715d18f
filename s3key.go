package holt

import "time"

// S3KeyPrefix begins the id of each S3 key, which clients call the access key id.
const S3KeyPrefix = "HOLT"

// S3Key is a pair of an id and a secret with which a client of S3 signs its requests. It has the rights of its token.
type S3Key struct {
	ID        string    `json:"id" doc:"access key id"`
	Token     TokenID   `json:"token" doc:"token whose rights it has; it ends with the token"`
	TokenName string    `json:"token_name" doc:"name of the token"`
	Tenant    string    `json:"tenant" doc:"tenant of the token"`
	CreatedAt time.Time `json:"created_at"`
}

// NewS3Key is a new S3 key with its secret.
type NewS3Key struct {
	S3Key
	Secret string `json:"secret" doc:"secret access key; shown only once"`
}
