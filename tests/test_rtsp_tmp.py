import av, time
def test_it(rtsp, proxy, test_data):
    s = rtsp({"a": test_data/"videos/vtest_480x360.mp4"}, user="ann", password="pw")
    t=time.time()
    with av.open(s.url("a"), options={"rtsp_transport":"tcp"}, timeout=(5,2)) as c:
        print(time.time()-t, c.streams.video[0])
    p = proxy(s.port, loss=0.05)
    t=time.time()
    with av.open(s.url("a", port=p.port), options={"rtsp_transport":"udp"}, timeout=(5,2)) as c:
        print(time.time()-t, c.streams.video[0])
        for n, pk in enumerate(c.demux(c.streams.video[0])):
            if n > 30: break
    print(p.lost, p.passed)
    for u in (s.url("nope"), s.url("a", password="bad"), "rtsp://127.0.0.1:1/a"):
        try: av.open(u, timeout=(5,2))
        except Exception as e: print(u, type(e), type(e).__mro__, e, e.log if hasattr(e,'log') else None)
    s.freeze()
    t=time.time()
    try: av.open(s.url("a"), timeout=(2,2))
    except Exception as e: print(time.time()-t, type(e), e)
    s.stop()
