"""TEMP"""
import base64, json, os, socket, struct, time
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.identity import new_identity
class Unauthorized(Exception): pass
def call(addr, token, op, limit_s=30, data=(), **kw):
    end=time.monotonic()+limit_s
    while True:
        try:
            s=socket.create_connection((addr,1024),timeout=1.0)
            s.settimeout(max(0.2,end-time.monotonic()))
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            p=json.dumps({"op":op,"token":token,**kw}).encode()
            m=b'\x01'+struct.pack('>I',len(p))+p
            for d in data: m+=b'\x02'+struct.pack('>I',len(d))+d
            s.sendall(m)
            f=s.makefile('rb'); out=b''
            while True:
                h=f.read(5)
                if len(h)<5: raise ConnectionError('eof')
                t,n=h[0],struct.unpack('>I',h[1:])[0]; b=f.read(n)
                if t in(2,3,4): out+=b
                if t==5: s.close(); return json.loads(b),out
                if t==6:
                    e=json.loads(b); s.close()
                    if e['code']=='unauthorized': raise Unauthorized
                    raise DriverError(str(e))
        except OSError as e:
            if time.monotonic()>end: raise DriverError(f"agent {op} {e}")
            time.sleep(0.1)
def adopt(rundir, host, spec, record, *, renew, limit_s):
    addr=host.network.slots.slot(record.slot).address
    extra={}
    if renew:
        i=new_identity(spec.sandbox_id); extra=dict(machineId=i.machine_id,hostname=i.hostname,hostKeyPrivate=i.host_key_private,hostKeyPublic=i.host_key_public)
    toks=rundir.tokens(); toks=toks[1:]+toks[:1]
    for t in toks:
        try:
            call(addr,t,'adopt',limit_s,newToken=spec.agent_token,sandboxId=spec.sandbox_id,clockNs=time.time_ns(),entropy=base64.b64encode(os.urandom(64)).decode(),renew=renew,env=spec.env,**extra)
            rundir.write_tokens(spec.agent_token)
            return
        except Unauthorized: pass
    raise DriverError('no token fits')
def warm_up(host, record, limit_s):
    addr=host.network.slots.slot(record.slot).address
    t=host.image.agent_token
    call(addr,t,'ping',limit_s); call(addr,t,'exec',60,shell='sync; echo 3 > /proc/sys/vm/drop_caches',cwd='/')
    for _ in range(5): call(addr,t,'exec',30,argv=['/bin/true'],cwd='/')
