package api

import (
	"fmt"

	"holt"
)

// OneService names a service of a computer in a path.
type OneService struct {
	OneComputer
	Service string `path:"service" maxLength:"255" doc:"name"`
}

// Inputs of services and ports.
type (
	ServiceKeyed struct {
		OneService
		Keyed
	}
	ServiceLog struct {
		OneService
		Lines  int  `query:"lines" minimum:"1" maximum:"100000" default:"1000" doc:"only the last lines, this many"`
		Follow bool `query:"follow" doc:"continue with what is added"`
	}
	PortConnect struct {
		OneComputer
		Port   int    `query:"port" minimum:"0" maximum:"65535" doc:"TCP port"`
		Socket string `query:"socket" maxLength:"107" doc:"absolute path of a unix socket"`
	}
)

// Address returns what is connected to.
func (in PortConnect) Address() holt.PortAddress {
	return holt.PortAddress{Port: in.Port, Socket: holt.OSString(in.Socket)}
}

const servicePath = computerPath + "/services/{service}"

var servicesTag = Tag("services")

// Services are programs that computers keep running. They are units of the computer's systemd, which belong to root.
var (
	AddService = Post[ComputerBody[holt.ServiceSpec], holt.Service](computerPath+"/services", "addService", "Add a service to a computer",
		changeAsRoot, Created, servicesTag, Doc("The program becomes a unit of the computer's systemd, and is started. The answer does not wait until it is ready; getService shows that. "+
			"It is started with the computer, and keeps running through pause and in forks. Adding the same service again changes nothing. A paused or stopped computer is woken first. A computer without systemd: unsupported."))
	ListServices = GetList[ComputerList](computerPath+"/services", "listServices", "List the services of a computer, with those of its template",
		asRoot, func(s holt.Service) string { return s.Name }, servicesTag)
	GetService     = Get[OneService, holt.Service](servicePath, "getService", "Get a service", asRoot, servicesTag)
	StartService   = Post[ServiceKeyed, holt.Service](servicePath+"/start", "startService", "Start a service, now and with the computer", changeAsRoot, servicesTag)
	RestartService = Post[ServiceKeyed, holt.Service](servicePath+"/restart", "restartService", "Restart a service", changeAsRoot, servicesTag)
	StopService    = Post[ServiceKeyed, holt.Service](servicePath+"/stop", "stopService", "Stop a service; it stays stopped when the computer is started again", changeAsRoot, servicesTag)
	DeleteService  = Delete[ServiceKeyed, holt.Service](servicePath, "deleteService", "Stop a service and remove it; one that the template declares cannot be removed", changeAsRoot, servicesTag)
	ServiceLogs    = Get[ServiceLog, Stream](servicePath+"/logs", "serviceLogs", "Read what a service has logged",
		asRoot, servicesTag, Bytes("text/plain", "lines of the computer's journal, each with its time"), Audited(AuditAll))
)

// ServiceVerbs are the endpoints of services by what they do.
var ServiceVerbs = map[string]Call[ServiceKeyed, holt.Service]{"start": StartService, "restart": RestartService, "stop": StopService, "delete": DeleteService}

var portsTag = Tag("ports")

func listenerKey(l holt.Listener) string {
	return fmt.Sprintf("%05d %s %s %d", l.Port, l.Protocol, l.Address, l.PID)
}

// Ports are what listens in computers.
var (
	ListPorts = GetList[ComputerList](computerPath+"/ports", "listPorts", "List what listens in a computer",
		readComputer, listenerKey, portsTag, Doc("TCP and UDP ports, by number. A paused or stopped computer is woken first."))
	ConnectPort = Get[PortConnect, Stream](computerPath+"/connect", "connectPort", "Connect to a port or a unix socket of a computer by WebSocket",
		Need{On: Content, Change: true}, portsTag, WebSocket[holt.PortMessage](), Audited(AuditStart), Doc("Give either port or socket. A port is connected to on the computer's loopback or, if nothing listens there, on any address where something listens at it. "+
			"A paused or stopped computer is woken first. The answer is 101 once the connection is made; where nothing listens it is 503, code unavailable. "+
			"Binary messages are bytes, in any number. Text messages are JSON, from either side: {\"kind\":\"end\"} says that its sender sends no more bytes (a half-close); the other direction stays open. "+
			"When both sides have sent it the server closes with 1000. A connection that breaks ends with a text message {\"kind\":\"error\",\"error\":…} of the server and 1011 "+
			"(it was reset in the computer, or the computer was paused, stopped or deleted), or with 1001: the daemon is ending. A client that closes without having sent end resets the connection. "+
			"The server waits for clients that read slowly; the bytes wait in the computer."))
)
