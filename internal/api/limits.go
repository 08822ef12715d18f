package api

import "holt"

// OneTenant names a tenant in a path.
type OneTenant struct {
	Tenant string `path:"tenant" doc:"a DNS label; tokens without a tenant belong to default"`
}

// LimitChange is the input of [SetLimit].
type LimitChange struct {
	OneTenant
	Keyed
	Body holt.LimitChange
}

// Limits are what the computers of a tenant may have together.
var (
	ListLimits = GetList[Paging]("/v1/limits", "listLimits", "List the limits and the use of tenants",
		Need{On: Host}, func(l holt.Limit) string { return l.Tenant }, Doc("Tenants that have limits or computers are listed, and the default tenant."))
	GetLimit = Get[OneTenant, holt.Limit]("/v1/limits/{tenant}", "getLimit", "Get what a tenant may have, and what it has", Need{On: Content})
	SetLimit = Patch[LimitChange, holt.Limit]("/v1/limits/{tenant}", "setLimit", "Change what a tenant may have",
		Need{On: Host, Change: true}, Doc("The limit applies at once: creating, starting, resuming, forking, restoring or resizing more than it allows fails with too_many, also when two calls come at once. "+
			"Lowering a limit removes nothing; only computers that have run for longer than max_run_ms are paused. Tokens of tenants other than default cannot change limits: forbidden."))
)
