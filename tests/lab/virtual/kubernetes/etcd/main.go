// Command etcd is the etcd server as released.
//
// Its own module cannot be built alone: it refers to its neighbours in the repository by relative paths.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
