"""reach.py PORT COMPUTER… forwards the port of each computer to this machine, all at once, and says what each answers to a GET."""
import json, subprocess, sys, urllib.request

port, computers = sys.argv[1], sys.argv[2:]
forwards = [subprocess.Popen(["holt", "computer", "forward", c, port + ":0", "--json"], stdout=subprocess.PIPE) for c in computers]
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def where(forward):
    text = b""
    for line in forward.stdout:
        text += line
        try:
            return json.loads(text)["forwards"][0]["local"]
        except ValueError:
            pass
    sys.exit("no forward: %r" % text)


try:
    for address in [where(f) for f in forwards]:
        sys.stdout.write(direct.open("http://" + address, timeout=600).read().decode())
finally:
    for f in forwards:
        f.terminate()
        f.wait()
