// A go-waku node for tests: bound to 127.0.0.1, with raised service limits and a store v3 service.
//
// It prints one line of JSON when it is ready, and runs until it is killed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
	"github.com/waku-org/go-waku/cmd/waku/server/rest"
	"github.com/waku-org/go-waku/waku/v2/node"
	"github.com/waku-org/go-waku/waku/v2/peerstore"
	wprotocol "github.com/waku-org/go-waku/waku/v2/protocol"
	"github.com/waku-org/go-waku/waku/v2/protocol/filter"
	"github.com/waku-org/go-waku/waku/v2/protocol/lightpush"
	"github.com/waku-org/go-waku/waku/v2/protocol/relay"
	"github.com/waku-org/go-waku/waku/v2/protocol/store"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

const (
	clusterID    = 1
	shards       = 8
	maxMessage   = 150_000
	redialPeriod = time.Second
)

func main() {
	restPort := flag.Uint("rest-port", 0, "port of the REST interface")
	tcpPort := flag.Int("tcp-port", 0, "port of libp2p")
	name := flag.String("name", "node", "seed of the node's key: the same name has the same peer id")
	storePath := flag.String("store", "", "file of the store v3 service; none without")
	light := flag.Bool("light", false, "no relay: a client of filter and lightpush")
	peers := flag.String("peers", "", "multiaddresses of other nodes, separated by commas")
	relayCache := flag.Uint("relay-cache", 1000, "messages that the REST interface keeps for each subscription")
	flag.Parse()
	if err := run(*restPort, *tcpPort, *name, *storePath, *light, *peers, *relayCache); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(restPort uint, tcpPort int, name, storePath string, light bool, peers string, relayCache uint) error {
	logger := zap.NewNop()
	// It would write a line for every request.
	middleware.DefaultLogger = func(next http.Handler) http.Handler { return next }
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	key, err := crypto.ToECDSA(crypto.Keccak256([]byte(name)))
	if err != nil {
		return err
	}
	all := make([]uint16, shards)
	topics := make([]string, shards)
	for i := range all {
		all[i] = uint16(i)
		topics[i] = wprotocol.NewStaticShardingPubsubTopic(clusterID, uint16(i)).String()
	}
	options := []node.WakuNodeOption{
		node.WithLogger(logger),
		node.WithPrivateKey(key),
		node.WithHostAddress(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcpPort}),
		// Neither NAT service nor port mappings nor other transports.
		node.WithLibP2POptions(libp2p.Transport(tcp.NewTCPTransport)),
		node.WithClusterID(clusterID),
		node.WithShards(all),
		node.WithMaxMsgSize(maxMessage),
		node.WithWakuStoreRateLimit(rate.Inf),
		node.WithWakuFilterLightNode(),
		node.WithKeepAlive(0, 0),
		node.WithMaxConnectionsPerIP(100),
	}
	if !light {
		options = append(options,
			node.WithWakuRelayAndMinPeers(1, pubsub.WithMaxMessageSize(maxMessage)),
			node.WithWakuFilterFullNode(filter.WithFullNodeRateLimiter(rate.Inf, 0)),
			node.WithLightPush(lightpush.WithRateLimiter(rate.Inf, 0)),
		)
	}
	wakuNode, err := node.New(options...)
	if err != nil {
		return err
	}
	if err := wakuNode.Start(ctx); err != nil {
		return err
	}
	defer wakuNode.Stop()

	if !light {
		for _, topic := range topics {
			if _, err := wakuNode.Relay().Subscribe(ctx, wprotocol.NewContentFilter(topic), relay.WithoutConsumer()); err != nil {
				return err
			}
		}
	}
	if storePath != "" {
		messages, err := openStore(storePath)
		if err != nil {
			return err
		}
		go messages.record(ctx, wakuNode.Broadcaster().RegisterForAll(relay.WithBufferSize(10_000)).Ch)
		messages.serve(wakuNode.Host())
	}
	if err := connect(ctx, wakuNode, peers, topics); err != nil {
		return err
	}

	var serving sync.WaitGroup
	serving.Add(1)
	server := rest.NewWakuRest(wakuNode, rest.RestConfig{
		Address: "127.0.0.1", Port: restPort, EnableAdmin: true, RelayCacheCapacity: relayCache, FilterCacheCapacity: 30,
	}, logger)
	server.Start(ctx, &serving)
	if err := awaitPort(restPort); err != nil {
		return err
	}
	ready := map[string]any{
		"address": fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/p2p/%s", tcpPort, wakuNode.ID()),
	}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// connect makes the peers known with every service they may have, and dials those that are not connected, since go-waku
// does not dial a static peer again that was restarted.
func connect(ctx context.Context, wakuNode *node.WakuNode, peers string, topics []string) error {
	services := []protocol.ID{filter.FilterSubscribeID_v20beta1, lightpush.LightPushID_v20beta1, store.StoreQueryID_v300}
	for _, text := range strings.FieldsFunc(peers, func(r rune) bool { return r == ',' }) {
		address, err := multiaddr.NewMultiaddr(text)
		if err != nil {
			return err
		}
		info, err := peer.AddrInfoFromP2pAddr(address)
		if err != nil {
			return err
		}
		if _, err := wakuNode.AddPeer([]multiaddr.Multiaddr{address}, peerstore.Static, topics, services...); err != nil {
			return err
		}
		go func() {
			for ctx.Err() == nil {
				if wakuNode.Host().Network().Connectedness(info.ID) != network.Connected {
					dialing, cancel := context.WithTimeout(ctx, 5*time.Second)
					_ = wakuNode.DialPeerWithInfo(dialing, *info)
					cancel()
				}
				time.Sleep(redialPeriod)
			}
		}()
	}
	return nil
}

func awaitPort(port uint) error {
	var err error
	for range 500 {
		var connection net.Conn
		if connection, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return connection.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
