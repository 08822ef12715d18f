package api

import "holt"

// OneToken names a token in a path.
type OneToken struct {
	Token string `path:"token" maxLength:"128" doc:"id, or a name that only one token has"`
}

// Inputs of tokens and SSH keys.
type (
	TokenKeyed struct {
		OneToken
		Keyed
	}
	S3KeyKeyed struct {
		Keyed
		ID string `path:"s3key" maxLength:"64" doc:"access key id"`
	}
	SSHKeyKeyed struct {
		Keyed
		ID string `path:"key" maxLength:"128" doc:"id, fingerprint, or a name that only one has"`
	}
)

// Tokens are the API tokens of a tenant. A caller makes, sees and revokes no token that may do more than itself.
var (
	CreateToken = Post[Body[holt.TokenSpec], holt.NewToken]("/v1/tokens", "createToken", "Make a token", Need{On: Content, Change: true}, Created,
		Doc("The answer has its secret, which is not kept and cannot be shown again: a repeated call with the same idempotency key gets the token without it (revoke it then, and make another). "+
			"Scopes say what it may do: admin (the host, and every tenant), read-only (changes nothing; reading from a computer, as its files, services and ports, wakes a paused one and starts a stopped one), computer:REF, user:NAME (only as this Linux user), workspace:REF[:read][:/PATH], port:REF:N (connections to one port). "+
			"Without any it may do everything in its tenant; with some of computer, workspace and port it reaches these and nothing else. Its rights and lifetime are limited to its creator token's, and it is revoked with that token. "+
			"An admin makes tokens of other tenants with the header Holt-Tenant."))
	ListTokens = GetList[Paging]("/v1/tokens", "listTokens", "List tokens, oldest first", Need{On: Content}, func(t holt.Token) string {
		return t.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000000") + string(t.ID)
	},
		Doc("Also those that have expired: the newest 1000 of a tenant are kept for a week, and removed when another is made. They do not count towards the 1000 that a tenant may have."))
	GetToken    = Get[OneToken, holt.Token]("/v1/tokens/{token}", "getToken", "Get a token, without its secret", Need{On: Content})
	DeleteToken = Delete[TokenKeyed, None]("/v1/tokens/{token}", "deleteToken", "Revoke a token", Need{On: Content, Change: true},
		Doc("The tokens that it created are revoked too. Their open calls and streams end at once. Its S3 keys are deleted."))

	CreateS3Key = Post[TokenKeyed, holt.NewS3Key]("/v1/tokens/{token}/s3-keys", "createS3Key", "Make an S3 key of a token", Need{On: Content, Change: true}, Created,
		Doc("A client of S3 signs its requests with it and has the token's rights. A token may have 100. The secret is in no other answer."))
	ListS3Keys  = GetList[Paging]("/v1/s3-keys", "listS3Keys", "List the S3 keys", Need{On: Content}, func(k holt.S3Key) string { return k.ID }, Tag("tokens"))
	DeleteS3Key = Delete[S3KeyKeyed, None]("/v1/s3-keys/{s3key}", "deleteS3Key", "Delete an S3 key", Need{On: Content, Change: true}, Tag("tokens"))
)

// The gateway of SSH clients, and their keys.
var (
	GetSSHHost = Get[None, holt.SSHHost]("/v1/ssh", "getSSHHost", "Get what SSH clients need to know: the host key, and where the gateway listens", Need{On: Anyone})
	ConnectSSH = Get[OneComputer, Stream]("/v1/computers/{computer}/ssh", "connectSSH", "Connect to the SSH gateway for a computer by WebSocket", Need{On: Computer, Change: true}, Tag("ssh"), Audited(AuditStart), WebSocket[holt.PortMessage](),
		Doc("For the ProxyCommand of an SSH client: at the other end is an SSH server that asks for no key, since this call was authenticated, and whose user name is that of a Linux user. "+
			"The messages are those of connectPort. The computer is woken by what the client asks for, not by this call."))
	ListSSHKeys = GetList[Paging]("/v1/ssh-keys", "listSSHKeys", "List the keys of SSH clients", Need{On: Content}, func(k holt.SSHKey) string { return string(k.ID) }, Tag("ssh"))
	AddSSHKey   = Post[Body[holt.SSHKeySpec], holt.SSHKey]("/v1/ssh-keys", "addSSHKey", "Allow SSH clients with a key", Need{On: Content, Change: true}, Tag("ssh"), Created,
		Doc("The key has the rights of the caller that adds it: a key that was added with a token has the token's, and ends with it. A tenant may have 1000; keys of tokens that have ended are removed when another is added."))
	DeleteSSHKey = Delete[SSHKeyKeyed, holt.SSHKey]("/v1/ssh-keys/{key}", "deleteSSHKey", "Remove a key, and end the connections made with it", Need{On: Content, Change: true}, Tag("ssh"))
)
