#!/bin/sh
# Gets Debian's copy of the German credit data (package weka) into a folder, without
# installing the package: setup.sh FOLDER
set -eu
folder=${1:?usage: setup.sh FOLDER}
mkdir -p "$folder"
cd "$folder"
if [ -f credit-g.arff ]; then exit 0; fi
if [ ! -f /usr/share/doc/weka/examples/credit-g.arff ]; then
  apt-get download weka
  dpkg-deb -x weka_*.deb weka
  cp weka/usr/share/doc/weka/examples/credit-g.arff .
  rm -rf weka weka_*.deb
else
  cp /usr/share/doc/weka/examples/credit-g.arff .
fi
