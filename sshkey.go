package holt

import "time"

// SSHKeyID identifies the public key of an SSH client: "key_…".
type SSHKeyID string

const sshKeyPrefix = "key_"

// NewSSHKeyID returns a fresh random identifier.
func NewSSHKeyID() SSHKeyID { return SSHKeyID(newID(sshKeyPrefix)) }

// ParseSSHKeyID checks an identifier from outside.
func ParseSSHKeyID(s string) (SSHKeyID, error) {
	id, err := parseID(sshKeyPrefix, "SSH key", s)
	return SSHKeyID(id), err
}

// SSHKeySpec describes a key to add.
type SSHKeySpec struct {
	Name                 string `json:"name,omitempty" maxLength:"128" doc:"default: the comment of the key"`
	Key                  string `json:"key" maxLength:"16384" doc:"a public key in the format of authorized_keys, without options: ssh-ed25519 AAAA… comment"`
	Tenant               string `json:"tenant,omitempty" doc:"tenant whose computers it reaches; default: the caller's"`
	AllowAgentForwarding bool   `json:"allow_agent_forwarding,omitempty" doc:"allow forwarding of an SSH agent into computers"`
}

// SSHKey is the public key of an SSH client.
type SSHKey struct {
	ID                   SSHKeyID   `json:"id"`
	Name                 string     `json:"name"`
	Type                 string     `json:"type" doc:"such as ssh-ed25519"`
	Fingerprint          string     `json:"fingerprint" doc:"in the format of ssh-keygen -l: SHA256:…"`
	Tenant               string     `json:"tenant,omitempty" doc:"tenant whose computers it reaches; absent: all, for keys of the daemon's owner"`
	Token                TokenID    `json:"token,omitempty" doc:"the token that it was added with; the key has its rights and ends with it"`
	AllowAgentForwarding bool       `json:"allow_agent_forwarding"`
	CreatedAt            time.Time  `json:"created_at"`
	LastUsedAt           *time.Time `json:"last_used_at,omitempty" doc:"to the minute"`
}

// SSHHost describes the SSH gateway for clients.
type SSHHost struct {
	Address     string `json:"address,omitempty" doc:"its TCP address; absent: it is available only through the API"`
	Type        string `json:"type" doc:"type of the host key"`
	Fingerprint string `json:"fingerprint" doc:"fingerprint of the host key, in the format of ssh-keygen -l"`
	Key         string `json:"key" doc:"the public host key; a line of known_hosts is a name, a space, and this"`
}
